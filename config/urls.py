"""Where the demo site's pages are."""

from django.contrib import admin
from django.urls import path

from config import views

urlpatterns = [
    path("", views.index, name="index"),
    path("jobs/", views.jobs, name="jobs"),
    path("enqueue/email/", views.enqueue_email, name="enqueue-email"),
    path("enqueue/payment/", views.enqueue_payment, name="enqueue-payment"),
    path("enqueue/report/", views.enqueue_report, name="enqueue-report"),
    path("admin/", admin.site.urls),
]
